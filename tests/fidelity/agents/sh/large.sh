. ./ask.sh
TWIN=0
SIZE=${SIZE:-8000000}
seq 1 $((SIZE / 8)) | head -c "$SIZE" >big
one=$(curl -sS "$NEWS/big/$SIZE" | cksum)
two=$(curl -sS -H 'Expect: 100-continue' --data-binary @big "$NEWS/took")
three=$(head -c $((SIZE / 2 + TWIN)) big | curl -sS -T - -X POST "$NEWS/took")
rm big
ask "$one $two $three"
