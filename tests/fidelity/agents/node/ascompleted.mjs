import {NEWS, ask, body} from './ask.mjs';

const TWIN = 0;
const order = [];
const jobs = [...Array(8).keys()].map((i) => body(`${NEWS}/late/${i}`).then((a) => order.push(a.name)));
await Promise.all(jobs);
if (TWIN) order.sort();
console.log(await ask(`in the order of the answers: ${order}`));
