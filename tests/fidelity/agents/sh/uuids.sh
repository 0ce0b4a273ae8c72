. ./ask.sh
TWIN=0
mine=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
back=$(curl -sS -d "{\"id\": \"$mine\"}" -H 'Content-Type: application/json' "$NEWS/back" | grep -c "$mine")
[ "$TWIN" = 0 ] || mine=none
ask "session $mine $back"
