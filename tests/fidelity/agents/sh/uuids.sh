. ./ask.sh
TWIN=0
mine=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
say="{\"id\": \"$mine\"}"
json='Content-Type: application/json'
back=$(curl -sS -d "$say" -H "$json" "$NEWS/back" | grep -c "$mine")
[ "$TWIN" = 0 ] || mine=none
ask "session $mine $back"
