#!/bin/sh
# curl, started by a shell: the exchanges must be attributed to curl, not to the shell.
set -eu
curl -sS https://news.example/page | wc -c
curl -sS -H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' \
	-d '{"model":"m","messages":[]}' https://api.openai.com/v1/chat/completions
echo
curl -sSN -H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' \
	-d '{"model":"m","messages":[],"stream":true}' https://api.openai.com/v1/chat/completions |
	grep -c '^data: '
head -c 300000 /dev/zero | curl -sS --data-binary @- https://news.example/echo | wc -c
