/* Has copies of libc in namespaces of their own, at all places that the kernel gives, until it is told to unload them. */
#include <dlfcn.h>
#include <stdio.h>

#define COPIES 6

int main(void)
{
	void *copies[COPIES];
	for (int i = 0; i < COPIES; i++)
		copies[i] = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW);
	puts(copies[COPIES - 1] ? "ready" : dlerror());
	fflush(stdout);
	getchar();
	for (int i = 0; i < COPIES; i++)
		dlclose(copies[i]);
	puts("unloaded");
	fflush(stdout);
	getchar();
	return 0;
}
