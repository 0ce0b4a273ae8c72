import {NEWS, ask} from './ask.mjs';

const TWIN = 0;
const found = await fetch(`${NEWS}/hop/${3 - TWIN}`);
const stopped = await fetch(`${NEWS}/leak`);
console.log(await ask(`${found.status} ${await found.text()} and ${stopped.status}`));
