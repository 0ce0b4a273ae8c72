. ./ask.sh
TWIN=0
seq 1 $((12 + TWIN)) | xargs -P4 -I{} sh -c 'echo {} | tr 1-9 a-i >part.{}; cksum <part.{} >sum.{}'
ask "$(cat sum.* | sort | cksum)"
