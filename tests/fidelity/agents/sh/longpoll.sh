. ./ask.sh
TWIN=0
empty=$TWIN
while [ "$(curl -sS -o news -w '%{http_code}' "$NEWS/poll/2")" = 204 ]; do
	empty=$((empty + 1))
done
ask "news after $empty empty answers: $(cat news)"
