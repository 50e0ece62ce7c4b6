/* Prints hashes, cookies and timestamps of pseudo-random requests, one line each. tests/cookies.rs does the same. */
#include "proxy/cookie.h"
#include "proxy/proxied.h"
#include <stdio.h>

static uint64_t state = 1;

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(void)
{
	uint64_t word = state += UINT64_C(0x9e3779b97f4a7c15);

	word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
	return word ^ word >> 31;
}

int main(void)
{
	for (uint32_t nth = 0; nth < 10000; nth++) {
		const uint64_t secret[2] = {draw(), draw()};
		struct cookie_request request;
		uint64_t time_ns, other;
		struct flow_proxied proxied;
		uint32_t epoch, mss, cookie, window, scale;

		for (uint32_t word = 0; word < FLOW_KEY_WORDS; word++)
			request.key.words[word] = draw();
		request.key.is_ipv6 = draw() & 1;
		request.client = draw() & 1;
		request.isn = (uint32_t)draw();
		time_ns = draw();
		mss = cookie_mss_index(draw() % 2000);
		epoch = cookie_epoch(time_ns);
		cookie = cookie_make(secret, &request, epoch, mss);
		other = draw();
		proxied = (struct flow_proxied){.delta = cookie, .stamp = (uint32_t)(other >> 32), .mss = 1460};
		proxied.bits = (uint16_t)((other >> 5 & 0xf) | (other >> 9 & 7) << PROXIED_TOLD_SCALE |
					  1 << PROXIED_TIMESTAMPS);
		window = other >> 12 & 0xffff;
		scale = other >> 28 & 7;
		proxied_answer(&proxied, request.isn, nth & 1, (uint32_t)time_ns);
		printf("%08x %08x %08x %d %u %u ", proxied.delta, proxied.stamp, proxied.isn,
		       proxied_has(&proxied, PROXIED_TIMESTAMPS), window_for_server(&proxied, window, scale),
		       window_for_client(&proxied, window, scale));
		printf("%016llx %08x %u %u %u %u %08x\n",
		       (unsigned long long)siphash(secret, request.key.words, FLOW_KEY_WORDS), cookie,
		       cookie_check(secret, &request, epoch, cookie), cookie_check(secret, &request, epoch + 1, cookie),
		       cookie_check(secret, &request, epoch + 2, cookie),
		       cookie_check(secret, &request, epoch, cookie ^ UINT32_C(1) << (other & 31)),
		       cookie_stamp(time_ns, other & 15, other >> 8 & 15, other >> 4 & 1));
	}
	return 0;
}
