/* plugin LIBRARY MODEL: a host that loads the library itself, and shows it to nobody else. */
#include <dlfcn.h>
#include <stdio.h>

#include "crossinfer.h"

int main(int argc, char **argv)
{
    void *library;
    crossinfer_status (*create)(const char *, const char *, crossinfer_model *);
    crossinfer_status (*shutdown)(void);
    const char *(*last_error)(void);
    crossinfer_model model;

    if (argc != 3 || (library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)) == NULL)
        return 2;
    *(void **)&create = dlsym(library, "crossinfer_create");
    *(void **)&shutdown = dlsym(library, "crossinfer_shutdown");
    *(void **)&last_error = dlsym(library, "crossinfer_last_error");
    if (create(argv[2], "{\"device\": \"cpu\"}", &model) != CROSSINFER_OK) {
        printf("%s\n", last_error());
        return 1;
    }
    if (shutdown() != CROSSINFER_OK)
        return 1;
    dlclose(library);
    printf("reached\n");
    return 0;
}
