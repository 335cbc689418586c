/* Whether this processor has what the kernels were compiled for: asked once, when the library is loaded. */
#include "heron-runtime.h"

#include <stdio.h>
#include <string.h>

int heron_cpu_fits = 0;

/* The line of the first processor that lists what it can do. */
static int read_flags(char *line, int size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    int found = 0;
    while (file != NULL && !found && fgets(line, size, file) != NULL)
        found = strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0;
    if (file != NULL)
        fclose(file);
    return found;
}

/* Whether a word is in a line of words. */
static int has_word(const char *line, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(line, word); at != NULL; at = strstr(at + 1, word)) {
        char before = at == line ? ' ' : at[-1], after = at[length];
        if ((before == ' ' || before == '\t') && (after == ' ' || after == '\n' || after == '\0'))
            return 1;
    }
    return 0;
}

__attribute__((constructor)) static void look(void)
{
    static char line[16384]; /* some 2,000 characters on today's processors */
    if (!read_flags(line, sizeof line))
        return;
    heron_cpu_fits = 1;
    for (const char *const *flag = heron_cpu_flags; *flag != NULL; flag++)
        heron_cpu_fits &= has_word(line, *flag);
}
