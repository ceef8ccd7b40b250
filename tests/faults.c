/* A preload library that lets the n-th call of a kind fail below some folders, counted over a whole tree of processes.

   EDGECOMPRESS_FAULTS names a file that all of them share: struct control, with the folders, one a line. A call with
   `kind` counts; the one whose number is `at` fails with `code`, or, at SHORT, does a part of its work. With `traced`
   set, each call that counts becomes a line of `log`, "number kind process path": a stage may write to no file of ours. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SHORT 10000
#define KINDS 16
#define LOG (4 << 20)

struct control {
    int32_t kind, at, code, hit; /* hit: how often it failed */
    int32_t sticky;              /* whether all later ones of that kind fail, too */
    int32_t counts[KINDS];
    char folders[2048];
    int32_t traced, used; /* whether calls are noted, and how much of the log is used */
    char log[LOG];
};
enum { OPEN, CREATE, READ, WRITE, FSYNC, RENAME, MKDIR, LINK, UNLINK, FLOCK, CLOSE, TRUNCATE, COPY, LIST, META };

static struct control *shared;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("EDGECOMPRESS_FAULTS");
    if (!name) return;
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int file = real(name, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *place = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int (*shut)(int) = dlsym(RTLD_NEXT, "close");
    shut(file);
    if (place != MAP_FAILED) shared = place;
}

static int below(const char *path) {
    for (const char *folder = shared->folders; *folder;) {
        size_t length = strcspn(folder, "\n");
        if (!strncmp(path, folder, length) && (path[length] == '/' || !path[length])) return 1;
        folder += length + (folder[length] == '\n');
    }
    return 0;
}

static void name_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
}

static void full(int folder, const char *path, char *out) {
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
        return;
    }
    char base[PATH_MAX];
    if (folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) base[0] = 0;
    } else name_of(folder, base);
    snprintf(out, PATH_MAX, "%.2000s/%.2000s", base, path);
}

static void note(int number, int kind, const char *path) {
    if (!shared->traced) return;
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%d %d %d %s\n", number, kind, getpid(), path);
    int place = __sync_fetch_and_add(&shared->used, length);
    if (place + length <= LOG) memcpy(shared->log + place, line, (size_t)length);
}

/* 0, or how this call is to fail. */
static int fault(int kind, const char *path) {
    if (!shared || !path[0] || !below(path)) return 0;
    int number = __sync_add_and_fetch(&shared->counts[kind], 1);
    note(number, kind, path);
    if (kind != shared->kind || !(number == shared->at || (shared->sticky && shared->at && number > shared->at))) return 0;
    __sync_add_and_fetch(&shared->hit, 1);
    return shared->code;
}

static int at(int kind, int folder, const char *path) {
    if (!shared || !path) return 0;
    char name[PATH_MAX];
    int before = errno;
    full(folder, path, name);
    int code = fault(kind, name);
    errno = before;
    return code;
}

static int on(int kind, int descriptor) {
    if (!shared || descriptor < 0) return 0;
    char name[PATH_MAX];
    int before = errno;
    name_of(descriptor, name);
    int code = fault(kind, name);
    errno = before;
    return code;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = dlsym(RTLD_NEXT, name)
#define FAIL(code, result) do { if (code) { errno = (code); return (result); } } while (0)

#define OPENER(symbol) \
    int symbol(const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        REAL(int, #symbol, const char *, int, ...); \
        int code = at(flags & (O_CREAT | O_WRONLY | O_RDWR) ? CREATE : OPEN, AT_FDCWD, path); \
        FAIL(code, -1); \
        return real(path, flags, mode); \
    }
OPENER(open)
OPENER(open64)
#define OPENER_AT(symbol) \
    int symbol(int folder, const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        REAL(int, #symbol, int, const char *, int, ...); \
        int code = at(flags & (O_CREAT | O_WRONLY | O_RDWR) ? CREATE : OPEN, folder, path); \
        FAIL(code, -1); \
        return real(folder, path, flags, mode); \
    }
OPENER_AT(openat)
OPENER_AT(openat64)

#define PATH_CALL(symbol, kind) \
    int symbol(const char *path) { \
        REAL(int, #symbol, const char *); \
        int code = at(kind, AT_FDCWD, path); \
        FAIL(code, -1); \
        return real(path); \
    }
PATH_CALL(unlink, UNLINK)
PATH_CALL(rmdir, UNLINK)
int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    int code = at(UNLINK, folder, path);
    FAIL(code, -1);
    return real(folder, path, flags);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    int code = at(MKDIR, AT_FDCWD, path);
    FAIL(code, -1);
    return real(path, mode);
}
int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    int code = at(MKDIR, folder, path);
    FAIL(code, -1);
    return real(folder, path, mode);
}
#define TWO_PATHS(symbol, kind) \
    int symbol(const char *one, const char *other) { \
        REAL(int, #symbol, const char *, const char *); \
        int code = at(kind, AT_FDCWD, other); \
        FAIL(code, -1); \
        return real(one, other); \
    }
TWO_PATHS(rename, RENAME)
TWO_PATHS(link, LINK)
TWO_PATHS(symlink, LINK)
int renameat(int from, const char *one, int to, const char *other) {
    REAL(int, "renameat", int, const char *, int, const char *);
    int code = at(RENAME, to, other);
    FAIL(code, -1);
    return real(from, one, to, other);
}
int renameat2(int from, const char *one, int to, const char *other, unsigned flags) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    int code = at(RENAME, to, other);
    FAIL(code, -1);
    return real(from, one, to, other, flags);
}

#define ON_DESCRIPTOR(symbol, kind) \
    int symbol(int file) { \
        REAL(int, #symbol, int); \
        int code = on(kind, file); \
        FAIL(code, -1); \
        return real(file); \
    }
ON_DESCRIPTOR(fsync, FSYNC)
ON_DESCRIPTOR(fdatasync, FSYNC)
int close(int file) { /* it is closed, whatever it says */
    REAL(int, "close", int);
    int code = on(CLOSE, file), done = real(file);
    FAIL(code, -1);
    return done;
}
int flock(int file, int how) {
    REAL(int, "flock", int, int);
    int code = on(FLOCK, file);
    FAIL(code, -1);
    return real(file, how);
}
#define TRUNCATES(symbol) \
    int symbol(int file, off_t size) { \
        REAL(int, #symbol, int, off_t); \
        int code = on(TRUNCATE, file); \
        FAIL(code, -1); \
        return real(file, size); \
    }
TRUNCATES(ftruncate)
TRUNCATES(ftruncate64)

static size_t part(int code, size_t size) { return code == SHORT && size > 1 ? size / 2 : size; }

ssize_t write(int file, const void *bytes, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    int code = on(WRITE, file);
    FAIL(code == SHORT ? 0 : code, -1);
    return real(file, bytes, part(code, size));
}
#define WRITES_AT(symbol) \
    ssize_t symbol(int file, const void *bytes, size_t size, off_t place) { \
        REAL(ssize_t, #symbol, int, const void *, size_t, off_t); \
        int code = on(WRITE, file); \
        FAIL(code == SHORT ? 0 : code, -1); \
        return real(file, bytes, part(code, size), place); \
    }
WRITES_AT(pwrite)
WRITES_AT(pwrite64)
ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    int code = on(WRITE, file);
    FAIL(code == SHORT ? 0 : code, -1);
    return real(file, parts, code == SHORT && count > 1 ? 1 : count);
}
size_t fwrite(const void *bytes, size_t size, size_t count, FILE *stream) {
    REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *);
    int code = on(WRITE, fileno(stream));
    if (code) {
        size_t done = code == SHORT ? real(bytes, size, count / 2, stream) : 0;
        errno = code == SHORT ? ENOSPC : code;
        return done;
    }
    return real(bytes, size, count, stream);
}
int fflush(FILE *stream) {
    REAL(int, "fflush", FILE *);
    int code = stream ? on(WRITE, fileno(stream)) : 0;
    FAIL(code == SHORT ? 0 : code, EOF);
    return real(stream);
}
int fclose(FILE *stream) {
    REAL(int, "fclose", FILE *);
    int code = on(CLOSE, fileno(stream)), done = real(stream);
    FAIL(code, EOF);
    return done;
}
ssize_t read(int file, void *bytes, size_t size) {
    REAL(ssize_t, "read", int, void *, size_t);
    int code = on(READ, file);
    FAIL(code == SHORT ? 0 : code, -1);
    return real(file, bytes, part(code, size));
}
#define SENDS(symbol) \
    ssize_t symbol(int to, int from, off_t *place, size_t size) { \
        REAL(ssize_t, #symbol, int, int, off_t *, size_t); \
        int code = on(COPY, to); \
        FAIL(code == SHORT ? 0 : code, -1); \
        return real(to, from, place, code == SHORT ? 7 : size); \
    }
SENDS(sendfile)
SENDS(sendfile64)
ssize_t copy_file_range(int from, off64_t *begin, int to, off64_t *place, size_t size, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    int code = on(COPY, to);
    FAIL(code == SHORT ? 0 : code, -1);
    return real(from, begin, to, place, code == SHORT ? 7 : size, flags);
}
#define LISTS(symbol, type) \
    struct type *symbol(DIR *folder) { \
        REAL(struct type *, #symbol, DIR *); \
        int code = on(LIST, dirfd(folder)); \
        FAIL(code, NULL); \
        return real(folder); \
    }
LISTS(readdir, dirent)
LISTS(readdir64, dirent64)
DIR *opendir(const char *path) {
    REAL(DIR *, "opendir", const char *);
    int code = at(OPEN, AT_FDCWD, path);
    FAIL(code, NULL);
    return real(path);
}
int utimensat(int folder, const char *path, const struct timespec times[2], int flags) {
    REAL(int, "utimensat", int, const char *, const struct timespec *, int);
    int code = at(META, folder, path);
    FAIL(code, -1);
    return real(folder, path, times, flags);
}
int futimens(int file, const struct timespec times[2]) {
    REAL(int, "futimens", int, const struct timespec *);
    int code = on(META, file);
    FAIL(code, -1);
    return real(file, times);
}
int chmod(const char *path, mode_t mode) {
    REAL(int, "chmod", const char *, mode_t);
    int code = at(META, AT_FDCWD, path);
    FAIL(code, -1);
    return real(path, mode);
}
