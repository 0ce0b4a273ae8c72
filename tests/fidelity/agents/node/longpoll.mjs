import {NEWS, ask} from './ask.mjs';

const TWIN = 0;
let empty = 0;
let answer;
while ((answer = await fetch(`${NEWS}/poll/2`)).status === 204) empty++;
console.log(await ask(`news after ${empty + TWIN} empty answers: ${await answer.text()}`));
