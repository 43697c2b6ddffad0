/* At each line of input, loads and unloads a library of the system 200 times. */
#include "hard.h"
#include <dlfcn.h>

int main(void)
{
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF) {
		for (int i = 0; i < 200; i++) {
			void *library = dlopen("libm.so.6", RTLD_NOW);
			CHECK(library && dlclose(library) == 0);
		}
		puts("loaded");
		fflush(stdout);
	}
	return 0;
}
