. ./ask.sh
TWIN=0
broken=$TWIN
until curl -sS -o part "$NEWS/cut/2" 2>/dev/null; do broken="$broken $? $(wc -c <part)"; done
ask "$(wc -c <part) bytes after $broken"
