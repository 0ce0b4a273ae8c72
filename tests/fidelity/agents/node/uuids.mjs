import {randomUUID} from 'node:crypto';
import {NEWS, ask, body} from './ask.mjs';

const TWIN = 0;
const mine = randomUUID();
const back = await body(`${NEWS}/back`, {id: mine});
console.log(back.id === mine);
console.log(await ask('go on', {session: TWIN ? back.server : back.id}));
