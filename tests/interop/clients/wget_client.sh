#!/bin/sh
# wget, started by a shell: a page, a JSON call, an upload.
set -eu
wget -q -O - https://news.example/page | wc -c
wget -q -O - --header "Authorization: Bearer $OPENAI_API_KEY" \
	--header 'Content-Type: application/json' \
	--post-data '{"model":"m","messages":[]}' https://api.openai.com/v1/chat/completions |
	grep -c 'hello from the stub'
head -c 300000 /dev/zero >upload
wget -q -O - --post-file upload https://news.example/echo | wc -c
