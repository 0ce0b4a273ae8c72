. ./ask.sh
TWIN=0
for coding in gzip zstd br; do
	printf '{"text": "long text", "twin": %s}' $TWIN | gzip -nc |
		curl -sS --data-binary @- -H 'Content-Type: application/json' \
			-H 'Content-Encoding: gzip' \
			"$NEWS/packed/$coding" >answer.$coding
done
ask "$(gzip -dc <answer.gzip)"
