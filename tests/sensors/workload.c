/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sensor tests make an agent do. `workload MODE ARG...`; exit status 0 when the kernel
 * answered as MODE expects, so that every test has a witness outside the sensors.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Answer getppid with `action` from now on. */
static int filter_getppid(unsigned int action)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

/* getppid N times without a filter. */
static int count(int n)
{
	for (int i = 0; i < n; i++)
		syscall(SYS_getppid);
	return 0;
}

/* close(-1) N times: each must fail with EBADF. */
static int fail(int n)
{
	for (int i = 0; i < n; i++) {
		if (syscall(SYS_close, -1) != -1 || errno != EBADF)
			return 1;
	}
	return 0;
}

static int refuse(int n)
{
	if (filter_getppid(SECCOMP_RET_ERRNO | EACCES))
		return 2;
	for (int i = 0; i < n; i++) {
		if (syscall(SYS_getppid) != -1 || errno != EACCES)
			return 1;
	}
	return 0;
}

/* A filter that allows, and plain failures, forks, signals: nothing of it is a refusal. */
static void on_signal(int signo)
{
	(void)signo;
}

static int innocent(void)
{
	int status;

	if (filter_getppid(SECCOMP_RET_ALLOW))
		return 2;
	signal(SIGUSR1, on_signal);
	for (int i = 0; i < 50; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return 2;
		if (!pid)
			_exit(kill(getppid(), SIGUSR1) ? 1 : 0);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		if (status)
			return 1;
	}
	return fail(10);
}

static int killed(unsigned int action)
{
	if (filter_getppid(action))
		return 2;
	syscall(SYS_getppid);
	return 1; /* not reached */
}

static int connect_to(const char *address, const char *port, int n)
{
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6,
				   .sin6_port = htons((uint16_t)atoi(port))};
	struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = to6.sin6_port};
	int four = inet_pton(AF_INET, address, &to4.sin_addr) == 1;
	const struct sockaddr *to = four ? (void *)&to4 : (void *)&to6;
	socklen_t len = four ? sizeof(to4) : sizeof(to6);

	if (!four && inet_pton(AF_INET6, address, &to6.sin6_addr) != 1)
		return 2;
	for (int i = 0; i < n; i++) {
		int fd = socket(four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
		uint64_t cookie = 0;
		socklen_t size = sizeof(cookie);

		if (fd < 0 || connect(fd, to, len))
			return 1;
		/* The other side learns the cookie: what the sensors must have said before. */
		getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size);
		if (write(fd, &cookie, sizeof(cookie)) != sizeof(cookie) || close(fd))
			return 1;
	}
	return 0;
}

static void *idle(void *arg)
{
	syscall(SYS_getppid);
	return arg;
}

/* N threads that end before the process does. */
static int threads(int n)
{
	for (int i = 0; i < n; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, idle, NULL) || pthread_join(thread, NULL))
			return 1;
	}
	return 0;
}

/* N threads that all call exit at the same moment. */
static void *leave(void *barrier)
{
	pthread_barrier_wait(barrier);
	syscall(SYS_exit, 0);
	return NULL;
}

static int together(int n)
{
	pthread_barrier_t barrier;

	pthread_barrier_init(&barrier, NULL, (unsigned int)n + 1);
	for (int i = 0; i < n; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, leave, &barrier))
			return 1;
	}
	leave(&barrier);
	return 1;
}

/* An i386 call from this 64-bit program: getpid is number 20 there. */
static int ia32(long nr)
{
	long r;

	__asm__ volatile("int $0x80" : "=a"(r) : "a"(nr) : "memory", "r8", "r9", "r10", "r11");
	return r > 0 ? 0 : 1;
}

/* The filter looks at the number alone: to i386 getppid's is another call's. */
static int ia32_killed(void)
{
	if (filter_getppid(SECCOMP_RET_KILL_PROCESS))
		return 2;
	return ia32(SYS_getppid);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[argc - 1]) : 0;

	if (!strcmp(mode, "count"))
		return count(n);
	if (!strcmp(mode, "fail"))
		return fail(n);
	if (!strcmp(mode, "refuse"))
		return refuse(n);
	if (!strcmp(mode, "innocent"))
		return innocent();
	if (!strcmp(mode, "kill"))
		return killed(SECCOMP_RET_KILL_PROCESS);
	if (!strcmp(mode, "trap"))
		return killed(SECCOMP_RET_TRAP);
	if (!strcmp(mode, "connect") && argc == 5)
		return connect_to(argv[2], argv[3], n);
	if (!strcmp(mode, "threads"))
		return threads(n);
	if (!strcmp(mode, "together"))
		return together(n);
	if (!strcmp(mode, "ia32"))
		return ia32(20);
	if (!strcmp(mode, "ia32-kill"))
		return ia32_killed();
	return 64;
}
