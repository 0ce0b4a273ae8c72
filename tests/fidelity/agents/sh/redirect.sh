. ./ask.sh
TWIN=0
found=$(curl -sSL -w '%{http_code} %{num_redirects}' "$NEWS/hop/$((3 - TWIN))")
stopped=$(curl -sSL -o /dev/null -w '%{http_code}' "$NEWS/leak")
ask "$found and $stopped"
