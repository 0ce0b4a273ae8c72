import {randomUUID} from 'node:crypto';
import {ask} from './ask.mjs';

const TWIN = 0;
const begun = performance.now();
await new Promise((done) => setTimeout(done, 40));
const said = `${new Date().toISOString()} ${performance.now() - begun} ${Math.random()} ${TWIN ? 'none' : randomUUID()}`;
console.log(await ask(said));
