/* A library for LD_AUDIT that sees each call through the PLT: the loader then makes these calls itself. */
#define _GNU_SOURCE
#include <link.h>

unsigned int la_version(unsigned int version)
{
	return version;
}

unsigned int la_objopen(struct link_map *map, Lmid_t list, uintptr_t *cookie)
{
	(void)map, (void)list, (void)cookie;
	return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

Elf64_Addr la_x86_64_gnu_pltenter(Elf64_Sym *symbol, unsigned int number, uintptr_t *from, uintptr_t *to,
				  La_x86_64_regs *registers, unsigned int *flags, const char *name, long *frame)
{
	(void)number, (void)from, (void)to, (void)registers, (void)flags, (void)name;
	/* Bytes of arguments on the stack. */
	*frame = 64;
	return symbol->st_value;
}
