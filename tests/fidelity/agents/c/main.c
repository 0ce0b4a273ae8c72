/* The C agent of the suite: OpenSSL and the C library alone. argv[1] names the shape. */
#include <netdb.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TWIN 0

struct answer {
	int status;
	char body[4096];
};

static SSL_CTX *trust;

static int dial(const char *host)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	int fd;

	if (getaddrinfo(host, "443", &hints, &found))
		exit(10);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, found->ai_addr, found->ai_addrlen))
		exit(11);
	freeaddrinfo(found);
	return fd;
}

static struct answer call(const char *method, const char *host, const char *path, const char *body)
{
	struct answer answer = { 0 };
	char head[1024], raw[8192];
	int fd = dial(host), got, size = 0;
	SSL *tls = SSL_new(trust);
	char *end;

	SSL_set_fd(tls, fd);
	SSL_set_tlsext_host_name(tls, host);
	SSL_set1_host(tls, host);
	if (SSL_connect(tls) != 1)
		exit(12);
	snprintf(head, sizeof(head),
		 "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
		 "Content-Length: %zu\r\nConnection: close\r\n\r\n",
		 method, path, host, strlen(body));
	SSL_write(tls, head, (int)strlen(head));
	if (*body)
		SSL_write(tls, body, (int)strlen(body));
	while (size < (int)sizeof(raw) - 1 &&
	       (got = SSL_read(tls, raw + size, (int)sizeof(raw) - 1 - size)) > 0)
		size += got;
	raw[size] = 0;
	if (sscanf(raw, "HTTP/1.1 %d", &answer.status) != 1)
		exit(13);
	end = strstr(raw, "\r\n\r\n");
	if (end)
		snprintf(answer.body, sizeof(answer.body), "%s", end + 4);
	SSL_shutdown(tls);
	SSL_free(tls);
	close(fd);
	return answer;
}

static void ask(const char *format, ...)
{
	char text[2048], body[3000];
	struct answer answer;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(body, sizeof(body),
		 "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", text);
	answer = call("POST", "api.openai.com", "/v1/chat/completions", body);
	printf("%d %zu\n", answer.status, strlen(answer.body));
}

static void hex(char *out, int count)
{
	unsigned char raw[32];

	if (getrandom(raw, (size_t)count, 0) != count)
		exit(14);
	for (int i = 0; i < count; i++)
		sprintf(out + 2 * i, "%02x", raw[i]);
}

static int numbers[12];

static void *work(void *arg)
{
	long first = (long)arg;
	char path[32];

	for (long i = first; i < 12; i += 4) {
		snprintf(path, sizeof(path), "/late/%ld", i);
		char *n = strstr(call("GET", "news.example", path, "").body, "\"n\": ");

		numbers[i] = n ? atoi(n + 5) : -1;
	}
	return NULL;
}

static void threads(void)
{
	pthread_t workers[4];
	char text[256] = "";

	for (long i = 0; i < 4; i++)
		pthread_create(&workers[i], NULL, work, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(workers[i], NULL);
	for (int i = 0; i < 12 - TWIN; i++)
		sprintf(text + strlen(text), "%d ", numbers[i]);
	ask("in the order of the jobs: %s", text);
}

static void uuids(void)
{
	char mine[33], body[64];
	struct answer back;

	hex(mine, 16);
	snprintf(body, sizeof(body), "{\"id\":\"%s\"}", mine);
	back = call("POST", "news.example", "/back", body);
	puts(strstr(back.body, mine) ? "same" : "another");
	ask("go on with %s", TWIN ? "none" : mine);
}

static void clocks(void)
{
	struct timespec now, begun;
	char some[17];

	clock_gettime(CLOCK_MONOTONIC, &begun);
	usleep(40000);
	clock_gettime(CLOCK_MONOTONIC, &now);
	hex(some, 8);
	ask("%ld %ld %s%s", (long)time(NULL), now.tv_nsec - begun.tv_nsec, some, TWIN ? "x" : "");
}

static void cuts(void)
{
	struct answer answer;
	int broken = TWIN;

	while ((answer = call("GET", "news.example", "/retry/503/2", "")).status != 200)
		broken++;
	ask("%d after %d refusals", answer.status, broken);
}

int main(int argc, char **argv)
{
	trust = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_default_verify_paths(trust);
	SSL_CTX_set_verify(trust, SSL_VERIFY_PEER, NULL);
	if (argc != 2)
		return 2;
	if (!strcmp(argv[1], "threads"))
		threads();
	else if (!strcmp(argv[1], "uuids"))
		uuids();
	else if (!strcmp(argv[1], "clock"))
		clocks();
	else if (!strcmp(argv[1], "retry"))
		cuts();
	else
		return 2;
	return 0;
}
