# What the agents of the suite share: one question to the model.
API=https://api.openai.com NEWS=https://news.example EVIL=https://evil.example
ask() {
	text=$(printf '%s' "$1" | tr '\n\t"\\' '    ')
	say="{\"role\":\"user\",\"content\":\"$text\"}"
	curl -sS -H 'Content-Type: application/json' \
		-H "Authorization: Bearer ${OPENAI_API_KEY:-x}" \
		-d "{\"model\":\"m\",\"messages\":[$say]}" \
		"$API/v1/chat/completions" | cksum
}
