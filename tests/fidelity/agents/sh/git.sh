. ./ask.sh
TWIN=0
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
git init -q -b main repo && cd repo
printf 'one\n' >a; git add a
git -c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -q -m "first $TWIN"
printf 'two\n' >>a
git -c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -q -a -m second
ask "$(git log --format=%H)"
