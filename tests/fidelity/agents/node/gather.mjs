import {NEWS, ask, body} from './ask.mjs';

const TWIN = 0;
const jobs = [...Array(10 + TWIN).keys()].map((i) => body(`${NEWS}/late/${i}`));
const answers = await Promise.all(jobs);
console.log(await ask(`in the order of the calls: ${answers.map((a) => a.n)}`));
