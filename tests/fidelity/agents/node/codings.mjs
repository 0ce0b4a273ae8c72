import {gzipSync} from 'node:zlib';
import {NEWS, ask} from './ask.mjs';

const TWIN = 0;
const out = [];
const sent = gzipSync(JSON.stringify({text: 'long '.repeat(50), twin: TWIN}));
for (const coding of ['gzip', 'br']) {
  const headers = {'content-type': 'application/json', 'content-encoding': 'gzip'};
  const answer = await fetch(`${NEWS}/packed/${coding}`, {method: 'POST', headers, body: sent});
  out.push(await answer.text());
}
console.log(await ask(out.join(' ')));
