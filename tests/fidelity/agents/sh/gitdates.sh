. ./ask.sh
TWIN=0
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
git init -q -b main repo && cd repo
printf 'one\n' >a; git add a
git -c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -q -m "first $TWIN"
ask "$(git log --format=%H)"; cd ..; rm -rf repo
