import {API, ask} from './ask.mjs';

const TWIN = 0;
const say = {model: 'm', stream: true, messages: [{role: 'user', content: 'count'}]};
const answer = await fetch(`${API}/v1/chat/completions`, {method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify(say)});
let text = '';
for await (const part of answer.body) text += Buffer.from(part).toString();
console.log(await ask(`${text.split('\n\n').length + TWIN} events`));
