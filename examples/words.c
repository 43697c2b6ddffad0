/* Counts the different words of a text. It is slow, and nopal shows where: cc -O2 -fno-inline words.c -o words */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static char words[100000][32];
static int count;

static int next(char *word)
{
	int length = 0, letter;
	while ((letter = getc(stdin)) != EOF && !isalpha(letter))
		;
	for (; letter != EOF && isalpha(letter); letter = getc(stdin))
		if (length < 31)
			word[length++] = (char)tolower(letter);
	word[length] = 0;
	return length;
}

static int find(const char *word)
{
	for (int i = 0; i < count; i++)
		if (strcmp(words[i], word) == 0)
			return 1;
	return 0;
}

static void add(const char *word)
{
	if (!find(word) && count < 100000)
		strcpy(words[count++], word);
}

int main(void)
{
	char word[32];
	while (next(word))
		add(word);
	printf("%d different words\n", count);
	return 0;
}
