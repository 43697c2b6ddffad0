/* Opens the libraries that it is given, the last one within nested calls, which is itself as a library. Linked with
 * -rdynamic and -DRUNTIME -shared, it is that library, and exports a name by which a Java virtual machine is known. */
#include "hard.h"
#include <dlfcn.h>
#include <unistd.h>

#ifdef RUNTIME

int JNI_CreateJavaVM(void)
{
	return 0;
}

#else

enum { STEPS = 100, PAUSE_MICROSECONDS = 5000 };

KEPT static long step(long n)
{
	EFFECT();
	return n + 1;
}

KEPT static int inner(const char *library)
{
	int opened = dlopen(library, RTLD_NOW) != NULL;
	EFFECT();
	return opened;
}

KEPT static int outer(const char *library)
{
	int opened = inner(library);
	EFFECT();
	return opened;
}

int main(int count, char **words)
{
	int opened = 0;
	for (int i = 1; i < count; i++)
		opened += i + 1 < count ? dlopen(words[i], RTLD_NOW) != NULL : outer(words[i]);
	long sum = 0;
	for (int i = 0; i < STEPS; i++) {
		sum = step(sum);
		usleep(PAUSE_MICROSECONDS);
	}
	printf("%d %ld\n", opened, sum);
	return 3;
}

#endif
