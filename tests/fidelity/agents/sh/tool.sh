. ./ask.sh
TWIN=0
ask "pid $$ date $(date +%s.%N) uuid $(cat /proc/sys/kernel/random/uuid) random $(head -c 4 /dev/urandom | od -An -tx1) twin $TWIN"
