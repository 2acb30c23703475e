/* XLA's calls of taps.c: a part of the maps for each thread. */

#include "foreign.h"
#include "taps.h"

typedef struct {
  const float *pictures, *maps, *weights; /* none: the views themselves */
  float *result;
  shape shape;
  int64_t count, parts;
} call;

static void work(void *data, int64_t part) {
  const call *c = data;
  const int64_t start = c->count * part / c->parts, end = c->count * (part + 1) / c->parts;
  if (c->weights)
    flowjax_inv_slopes(c->pictures, c->maps, c->weights, c->result, &c->shape, start, end);
  else
    flowjax_inv_blend(c->pictures, c->maps, c->result, &c->shape, start, end);
}

static void *answer(const frame *f, int weighed) {
  if (is_question(f)) return NULL;
  buffer **given = f->arguments.each;
  const int64_t *sizes = given[0]->sizes, count = given[1]->sizes[0] * given[1]->sizes[1];
  const int64_t threads = threads_of(f), parts = threads < count ? threads : count;
  const shape shape = {sizes[0], sizes[1], sizes[2], sizes[3], option(f, "border")};
  call c = {given[0]->data, given[1]->data, weighed ? given[2]->data : NULL,
            f->results.each[0]->data, shape, count, parts};
  share(f, work, &c, parts);
  return NULL;
}

void *flowjax_inv_call_blend(const frame *f) { return answer(f, 0); }

void *flowjax_inv_call_slopes(const frame *f) { return answer(f, 1); }
