/* oneDNN's convolutions as XLA calls them: the images in parts, one for each thread. `onednn.py` makes
   the operations, once for shapes; here they are kept and run. */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "foreign.h"
#include "onednn.h"

enum { STEPS = 3 };

/* A primitive of oneDNN and its arguments. */
typedef struct {
  void *primitive, *arguments;
  int64_t count;
} step;

/* A convolution, and the changes of a kernel's layout around it; its memory is for one call at a
   time. */
typedef struct operation {
  void *stream, *memories[ARRAYS];
  step steps[STEPS];
  key key;
  struct operation *next;
} operation;

/* What onednn.py gives: a maker, which writes an operation, or what went wrong; and oneDNN's own. */
static struct {
  int (*make)(const key *, operation *, char *message);
  int (*set_data)(void *memory, void *data);
  int (*execute)(void *primitive, void *stream, int count, void *arguments);
  int (*threads)(void);
  void (*set_threads)(int);
} library;

void flowjax_inv_onednn(const void *functions) { memcpy(&library, functions, sizeof library); }

/* Those that do not run, as many as ever ran at once. */
static operation *idle;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static operation *taken(const key *k) {
  pthread_mutex_lock(&lock);
  operation **at = &idle, *found;
  while (*at && memcmp(&(*at)->key, k, sizeof *k)) at = &(*at)->next;
  if ((found = *at)) *at = found->next;
  pthread_mutex_unlock(&lock);
  return found;
}

static void put_back(operation *o) {
  pthread_mutex_lock(&lock);
  o->next = idle, idle = o;
  pthread_mutex_unlock(&lock);
}

static int run(const operation *o, float *const *arrays) {
  int status = 0;
  for (int n = 0; n < ARRAYS && !status; n++) status = library.set_data(o->memories[n], arrays[n]);
  for (int n = 0; n < STEPS && !status; n++)
    if (o->steps[n].primitive)
      status = library.execute(o->steps[n].primitive, o->stream, (int)o->steps[n].count,
                               o->steps[n].arguments);
  return status;
}

/* This thread of XLA's works by itself, and operations are made for one: OpenMP's own wait by
   spinning, on cores that XLA needs; and where PyTorch shares the process, its threads count as the
   same, and as too many to spin. */
void flowjax_inv_convolve(const key *k, float *const *arrays, char *message) {
  const int before = library.threads();
  library.set_threads(1);
  operation *o = taken(k);
  if (!o) {
    if (!(o = calloc(1, sizeof *o))) abort();
    o->key = *k;
    if (library.make(k, o, message)) {
      free(o);
      o = NULL;
    }
  }
  if (o) {
    if (run(o, arrays)) strcpy(message, "oneDNN could not convolve.");
    put_back(o);
  }
  library.set_threads(before);
}

typedef struct {
  key key;
  float *arrays[ARRAYS], *sums; /* of a kernel's gradient, but for the first part */
  int64_t parts;
  char message[MESSAGE];
} call;

static void work(void *data, int64_t part) {
  call *c = data;
  const int64_t batch = c->key.sizes[IMAGES][0];
  const int64_t start = batch * part / c->parts, end = batch * (part + 1) / c->parts;
  key k = c->key;
  k.sizes[IMAGES][0] = k.sizes[OUTPUTS][0] = end - start;
  float *arrays[ARRAYS] = {
      c->arrays[IMAGES] + start * (length(c->key.sizes[IMAGES]) / batch), c->arrays[KERNEL],
      c->arrays[OUTPUTS] + start * (length(c->key.sizes[OUTPUTS]) / batch)};
  if (k.map == D_KERNEL && part) arrays[KERNEL] = c->sums + (part - 1) * length(k.sizes[KERNEL]);
  flowjax_inv_convolve(&k, arrays, c->message);
}

/* The same parts give the same numbers, whatever thread does them. */
static void add_sums(const call *c) {
  const int64_t size = length(c->key.sizes[KERNEL]);
  for (int64_t part = 1; part < c->parts; part++)
    for (int64_t n = 0; n < size; n++) c->arrays[KERNEL][n] += c->sums[(part - 1) * size + n];
}

static void *answer(const frame *f, int map) {
  if (is_question(f)) return NULL;
  buffer *given[] = {f->arguments.each[0], f->arguments.each[1], f->results.each[0]};
  static const int places[][ARRAYS] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}};
  call c = {.key = {.map = map, .stride = option(f, "stride"), .padding = option(f, "padding")}};
  for (int n = 0; n < ARRAYS; n++) {
    const buffer *b = given[places[map][n]];
    c.arrays[n] = b->data;
    memcpy(c.key.sizes[n], b->sizes, sizeof c.key.sizes[n]);
  }
  const int64_t threads = threads_of(f), batch = c.key.sizes[IMAGES][0];
  c.parts = threads < batch ? threads : batch;
  if (map == D_KERNEL && c.parts > 1) {
    c.sums = malloc((c.parts - 1) * length(c.key.sizes[KERNEL]) * sizeof(float));
    if (!c.sums) abort();
  }
  share(f, work, &c, c.parts);
  if (c.sums) add_sums(&c);
  free(c.sums);
  return *c.message ? failure(f, c.message) : NULL;
}

void *flowjax_inv_call_forward(const frame *f) { return answer(f, FORWARD); }

void *flowjax_inv_call_d_images(const frame *f) { return answer(f, D_IMAGES); }

void *flowjax_inv_call_d_kernel(const frame *f) { return answer(f, D_KERNEL); }
