// Calls of the C library with known values: prints those lines that a report must have.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void)
{
    char buffer[16], text[64];
    int number = 0;
    const char *volatile path = "/dev/null", *volatile nowhere = "/no/such/file";
    const char *volatile format = "%d %s %.1f %c";
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    ssize_t none = read(descriptor, buffer, sizeof buffer);
    ssize_t all = write(descriptor, "four", 4);
    int absent = open(nowhere, O_RDONLY);
    struct stat status;
    int unknown = stat(nowhere, &status);
    FILE *file = fopen(nowhere, "r");
    snprintf(text, sizeof text, format, -3, "words", 2.5, 'c');
    sscanf("17", "%d", &number);
    setenv("VALUES", "some", 1);
    const char *variable = getenv("VALUES");
    close(descriptor);
    printf("open(\"/dev/null\", O_RDWR|O_CLOEXEC) = %d\n", descriptor);
    printf("read(%d, \"\", 16) = %zd\n", descriptor, none);
    printf("write(%d, \"four\", 4) = %zd\n", descriptor, all);
    if (absent < 0) printf("open(\"/no/such/file\", O_RDONLY) = -1 ENOENT (No such file or directory)\n");
    if (!file) printf("fopen(\"/no/such/file\", \"r\") = NULL ENOENT (No such file or directory)\n");
    printf("snprintf(TEXT, 64, \"%%d %%s %%.1f %%c\", -3, \"words\", 2.5, 'c') = %zu\n", strlen(text));
    if (number == 17) printf("setenv(\"VALUES\", \"some\", 1) = 0\n");
    printf("getenv(\"VALUES\") = \"%s\"\n", variable);
    return unknown == -1 ? 0 : 1;
}
