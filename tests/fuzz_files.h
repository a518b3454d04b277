#ifndef LOGBROKER_TESTS_FUZZ_FILES_H
#define LOGBROKER_TESTS_FUZZ_FILES_H

/* Makes a data directory with an empty log `t-0` in it, once, in memory where that has a place for files; the process takes it
 * away at its exit. Nothing is logged any more. Whatever fails ends the process. */
void fuzz_files_prepare(int *root_fd, int *log_fd);

/* A file, or an empty directory. */
void fuzz_files_remove(int fd, const char *name);

/* Removes everything in that directory, but for what is in directories in it. */
void fuzz_files_empty(int fd);

#endif
