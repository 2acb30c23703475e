/* XLA's calls of taps.c through its foreign function interface, the maps shared by its threads.

What `foreign.py` does for functions of Python, without Python: a call costs a fifth of it, which is
half of the time of a small warp. Structures stand below as far as they are read.
Source: XLA, xla/ffi/api/c_api.h. */

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "taps.h"

enum { METADATA = 1 };

typedef struct extension {
  size_t size;
  int kind;
  struct extension *next;
} extension;

#define HEAD    \
  size_t size;  \
  extension *more

typedef struct {
  HEAD;
  int major, minor;
} version;

typedef struct {
  size_t size;
  version version;
} metadata;

typedef struct {
  extension base;
  metadata *metadata;
} metadata_extension;

typedef struct {
  HEAD;
  void *context;
  void (*task)(void *);
  void *data;
} task_arguments;

typedef struct {
  HEAD;
  void *context;
  int64_t *threads;
} threads_arguments;

typedef struct {
  HEAD;
  version version;
  void *internal;
  void *error;
  void *others[10];
  void *(*schedule)(task_arguments *);
  void *(*threads)(threads_arguments *);
} api;

typedef struct {
  HEAD;
  int dtype;
  void *data;
  int64_t rank;
  int64_t *sizes;
} buffer;

typedef struct {
  HEAD;
  int64_t count;
  int *types;
  buffer **each;
} buffers;

typedef struct {
  int dtype;
  int32_t *value;
} number;

typedef struct {
  HEAD;
  int64_t count;
  int *types;
  void *names;
  number **each;
} attributes;

typedef struct {
  HEAD;
  const api *api;
  void *context;
  int stage;
  buffers arguments, results;
  attributes attributes;
} frame;

/* One call: the maps in parts, which any thread may take; freed by the last that knows of it. */
typedef struct {
  const float *pictures, *maps, *weights;
  float *result;
  shape shape;
  int64_t count, parts;
  atomic_int_fast64_t begun, done, known;
} work;

static void take(work *w) {
  int64_t part;
  while ((part = atomic_fetch_add(&w->begun, 1)) < w->parts) {
    const int64_t start = w->count * part / w->parts, end = w->count * (part + 1) / w->parts;
    if (w->weights)
      flowjax_inv_slopes(w->pictures, w->maps, w->weights, w->result, &w->shape, start, end);
    else
      flowjax_inv_blend(w->pictures, w->maps, w->result, &w->shape, start, end);
    atomic_fetch_add(&w->done, 1);
  }
}

static void leave(work *w) {
  if (atomic_fetch_sub(&w->known, 1) == 1) free(w);
}

static void help(void *w) {
  take(w);
  leave(w);
}

static int64_t threads_of(const frame *f) {
  int64_t threads = 1;
  f->api->threads(&(threads_arguments){sizeof(threads_arguments), NULL, f->context, &threads});
  return threads;
}

/* The border is the only attribute. */
static shape shape_of(const frame *f) {
  const int64_t *sizes = f->arguments.each[0]->sizes;
  return (shape){sizes[0], sizes[1], sizes[2], sizes[3], *f->attributes.each[0]->value};
}

/* Answer one call: tell the version of the interface, or compute. This thread takes what others have
   not begun: should all be busy, it does everything. */
static void *answer(const frame *f, int weighed) {
  if (f->more && f->more->kind == METADATA) {
    version *asked = &((metadata_extension *)f->more)->metadata->version;
    asked->major = f->api->version.major, asked->minor = f->api->version.minor;
    return NULL;
  }
  buffer **given = f->arguments.each;
  work *w = malloc(sizeof *w);
  if (!w) abort(); /* as XLA does */
  const int64_t count = given[1]->sizes[0] * given[1]->sizes[1], threads = threads_of(f);
  *w = (work){.pictures = given[0]->data,
              .maps = given[1]->data,
              .weights = weighed ? given[2]->data : NULL,
              .result = f->results.each[0]->data,
              .shape = shape_of(f),
              .count = count,
              .parts = threads < count ? threads : count};
  atomic_init(&w->known, w->parts > 1 ? w->parts : 1);
  for (int64_t n = 1; n < w->parts; n++)
    if (f->api->schedule(&(task_arguments){sizeof(task_arguments), NULL, f->context, help, w}))
      leave(w);
  take(w);
  while (atomic_load(&w->done) < w->parts) sched_yield();
  leave(w);
  return NULL;
}

void *flowjax_inv_call_blend(const frame *f) { return answer(f, 0); }

void *flowjax_inv_call_slopes(const frame *f) { return answer(f, 1); }
