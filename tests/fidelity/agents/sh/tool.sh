. ./ask.sh
TWIN=0
some=$(head -c 4 /dev/urandom | od -An -tx1)
uuid=$(cat /proc/sys/kernel/random/uuid)
ask "pid $$ date $(date +%s.%N) uuid $uuid random $some twin $TWIN"
