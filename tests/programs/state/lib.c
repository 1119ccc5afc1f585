// The areas of forms.s in the shared library, for the program.
#include <stdint.h>
struct state;
#define HIDDEN __attribute__((visibility("hidden")))
extern HIDDEN struct state before, inside, leaving, after, pattern_a, pattern_b;
extern HIDDEN uint32_t xsave_mask;
extern HIDDEN char forms[];
struct state *area_of(int n) { struct state *all[] = {&before, &inside, &leaving, &after, &pattern_a, &pattern_b}; return all[n]; }
uint32_t *mask_of(void) { return &xsave_mask; }
void *forms_of(void) { return forms; }
