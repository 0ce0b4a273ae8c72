import {execFileSync} from 'node:child_process';
import {ask} from './ask.mjs';

const TWIN = 0;
const said = execFileSync('/bin/sh', ['-c', `printf 'a\\nb\\n' | sort -r; pwd; id -un${TWIN ? '; uname' : ''}`]).toString();
console.log(await ask(`the tool printed ${said}`));
