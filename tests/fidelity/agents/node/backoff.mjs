import {NEWS, ask} from './ask.mjs';

const TWIN = 0;
let tries = 0;
for (;;) {
  const answer = await fetch(`${NEWS}/retry/429/3`);
  await answer.text();
  if (answer.ok) break;
  tries++;
  await new Promise((done) => setTimeout(done, 20 * tries * (1 + Math.random())));
}
console.log(await ask(`worked after ${tries + TWIN} refusals`));
