/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0 */
#include "rules.h"

bool far;

void expect(const char *what, const struct sim_exploration *exploration, const char *rule)
{
	struct sim_explored explored = sim_explore(exploration);
	printf("%s: %llu states, %llu steps: %s\n", what, (unsigned long long)explored.states,
	       (unsigned long long)explored.steps, explored.broken ? explored.broken : "no rule is broken");
	fflush(stdout);
	if (rule ? !explored.broken || strcmp(explored.broken, rule) : !!explored.broken) {
		printf("expected: %s\n", rule ? rule : "no rule is broken");
		fflush(stdout);
		abort();
	}
}

int main(int count, char **words)
{
	const char *distance = getenv("NOPAL_EXPLORE");
	far = distance && !strcmp(distance, "far");
	const struct test *groups[] = { in_place_tests, stopped_tests, chunk_tests, grace_tests };
	for (unsigned i = 0; i < sizeof groups / sizeof *groups; i++)
		for (const struct test *test = groups[i]; test->name; test++) {
			if (count < 2) {
				puts(test->name);
			} else if (!strcmp(test->name, words[1])) {
				test->run();
				return 0;
			}
		}
	return count < 2 ? 0 : 2;
}
