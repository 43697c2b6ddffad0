/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Sends packets to itself, and marks where each is sent and received. Prints how many a second. */
#include <arpa/inet.h>
#include <nopal.h>
#include <stdio.h>
#include <sys/socket.h>

#include "measure.h"

#define PACKETS 10000

__attribute__((noinline)) static int send_one(int socket, const char *packet, int number)
{
	NOPAL_MARK(sent, "number=%d bytes=%d", number, 56);
	return send(socket, packet, 56, 0) == 56;
}

__attribute__((noinline)) static int receive_one(int socket, char *packet, int number)
{
	long bytes = recv(socket, packet, 56, 0);
	NOPAL_MARK(received, "number=%d bytes=%ld", number, bytes);
	return bytes == 56;
}

int main(void)
{
	int own = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t length = sizeof address;
	char packet[56] = { 0 };
	if (own < 0 || bind(own, (struct sockaddr *)&address, length) ||
	    getsockname(own, (struct sockaddr *)&address, &length) || connect(own, (struct sockaddr *)&address, length))
		return 1;
	double best = 0;
	for (int round = 0; round < 5; round++) {
		double begin = nanoseconds();
		for (int i = 0; i < PACKETS; i++)
			if (!send_one(own, packet, i) || !receive_one(own, packet, i))
				return 1;
		double rate = PACKETS * 1e9 / (nanoseconds() - begin);
		best = rate > best ? rate : best;
	}
	printf("packets %.1f\n", best);
	return 0;
}
