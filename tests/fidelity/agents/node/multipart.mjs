import {NEWS, ask} from './ask.mjs';

const TWIN = 0;
const form = new FormData();
form.append('purpose', TWIN ? 'other' : 'assistants');
form.append('file', new Blob(['some text\n']), 'notes.txt');
const answer = await fetch(`${NEWS}/took`, {method: 'POST', body: form});
console.log(await ask(`uploaded ${answer.status}`));
