// The functions of jemalloc that oha calls, on the C library's. Where oha only tests the load scripts,
// and measures nothing, this saves the compilation of jemalloc, a third of the time of all.
// MALLOCX_LG_ALIGN and MALLOCX_ZERO are those of jemalloc.h.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT(flags) ((size_t)1 << ((flags) & 63))
#define ZERO 0x40

void *_rjem_malloc(size_t size) { return malloc(size); }
void *_rjem_calloc(size_t count, size_t size) { return calloc(count, size); }
void *_rjem_realloc(void *memory, size_t size) { return realloc(memory, size); }
size_t _rjem_malloc_usable_size(void *memory) { return malloc_usable_size(memory); }
size_t _rjem_nallocx(size_t size, int flags) { (void)flags; return size; }
void _rjem_sdallocx(void *memory, size_t size, int flags) { (void)size, (void)flags, free(memory); }

void *_rjem_mallocx(size_t size, int flags) {
  void *memory = NULL;
  size_t alignment = ALIGNMENT(flags);
  if (alignment < sizeof(void *)) alignment = sizeof(void *);
  if (posix_memalign(&memory, alignment, size) != 0) return NULL;
  return flags & ZERO ? memset(memory, 0, size) : memory;
}

void *_rjem_rallocx(void *memory, size_t size, int flags) {
  void *larger = _rjem_mallocx(size, flags);
  if (larger == NULL) return NULL;
  size_t old = malloc_usable_size(memory);
  memcpy(larger, memory, old < size ? old : size);
  free(memory);
  return larger;
}

// In place, which is never possible.
size_t _rjem_xallocx(void *memory, size_t size, size_t extra, int flags) {
  (void)size, (void)extra, (void)flags;
  return malloc_usable_size(memory);
}
