. ./ask.sh
TWIN=0
mkdir d; printf 'x\n' >d/one; cp -p ask.sh d/two; touch -d '2020-01-01 00:00:00 UTC' d/three
[ "$TWIN" = 0 ] || touch d/four
ask "$(ls -la --time-style=full-iso d; stat -c '%n %s %y' d/*; tar cf - d | cksum)"
