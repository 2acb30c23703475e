/* XLA's calls and its threads: foreign.h says what for, the other files what they compute. */

#include "foreign.h"

#include <Python.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { METADATA = 1, INTERNAL = 13 };

struct extension {
  size_t size;
  int kind;
  extension *next;
};

typedef struct {
  HEAD;
  int major, minor;
} version;

typedef struct {
  extension base;
  struct {
    size_t size;
    version version;
  } *metadata;
} question;

typedef struct {
  HEAD;
  const char *message;
  int code;
} error_arguments;

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

struct api {
  HEAD;
  version version;
  void *internal;
  void *(*error)(error_arguments *);
  void *others[10];
  void *(*schedule)(task_arguments *);
  void *(*threads)(threads_arguments *);
};

int is_question(const frame *f) {
  if (!f->more || f->more->kind != METADATA) return 0;
  version *asked = &((question *)f->more)->metadata->version;
  asked->major = f->api->version.major, asked->minor = f->api->version.minor;
  return 1;
}

int32_t option(const frame *f, const char *wanted) {
  const attributes *a = &f->attributes;
  for (int64_t n = 0; n < a->count; n++)
    if (strlen(wanted) == a->names[n]->length &&
        !memcmp(wanted, a->names[n]->text, a->names[n]->length))
      return *a->each[n]->value;
  abort(); /* a slip in foreign.py's calls */
}

int64_t threads_of(const frame *f) {
  int64_t threads = 1;
  f->api->threads(&(threads_arguments){sizeof(threads_arguments), NULL, f->context, &threads});
  return threads;
}

void *failure(const frame *f, const char *message) {
  return f->api->error(&(error_arguments){sizeof(error_arguments), NULL, message, INTERNAL});
}

/* Freed by the last thread that knows of it: helpers may come when all is done. */
typedef struct {
  void (*work)(void *, int64_t);
  void *data;
  int64_t parts;
  atomic_int_fast64_t begun, known;
  int64_t done;
  pthread_mutex_t lock;
  pthread_cond_t all_done;
} shared;

static void take(shared *s) {
  int64_t part;
  while ((part = atomic_fetch_add(&s->begun, 1)) < s->parts) {
    s->work(s->data, part);
    pthread_mutex_lock(&s->lock);
    if (++s->done == s->parts) pthread_cond_signal(&s->all_done);
    pthread_mutex_unlock(&s->lock);
  }
}

/* Not by asking again and again: whoever does the rest may want this core. */
static void wait_for_all(shared *s) {
  pthread_mutex_lock(&s->lock);
  while (s->done < s->parts) pthread_cond_wait(&s->all_done, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

static void leave(shared *s) {
  if (atomic_fetch_sub(&s->known, 1) == 1) free(s);
}

static void help(void *s) {
  take(s);
  leave(s);
}

void share(const frame *f, void (*work)(void *, int64_t), void *data, int64_t parts) {
  shared *s = malloc(sizeof *s);
  if (!s) abort(); /* as XLA does */
  *s = (shared){.work = work, .data = data, .parts = parts, .lock = PTHREAD_MUTEX_INITIALIZER,
                .all_done = PTHREAD_COND_INITIALIZER};
  atomic_init(&s->known, parts > 1 ? parts : 1);
  for (int64_t n = 1; n < parts; n++)
    if (f->api->schedule(&(task_arguments){sizeof(task_arguments), NULL, f->context, help, s}))
      leave(s);
  take(s);
  wait_for_all(s);
  leave(s);
}

/* A module of Python's, so that it is found as one; the functions are called by XLA and ctypes. */
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_library", "What XLA calls on a CPU: foreign.py.", -1, NULL,
};

PyMODINIT_FUNC PyInit__library(void) { return PyModule_Create(&module); }
