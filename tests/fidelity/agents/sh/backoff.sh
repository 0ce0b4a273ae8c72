. ./ask.sh
TWIN=0
tries=$TWIN
until curl -sSf -o /dev/null "$NEWS/retry/429/2" 2>/dev/null; do
	tries=$((tries + 1))
	sleep 0.05
done
ask "worked after $tries refusals"
