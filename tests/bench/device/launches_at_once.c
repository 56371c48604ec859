/* Launches kernels from many threads at once, in one forked process after another, and prints the
 * most MiB of a card that were taken then. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 32
#define KERNELS 4
#define PROCESSES 60

int cudaLaunchKernelExC(const void *config, const void *kernel, void **arguments);
int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);

static pthread_barrier_t start;

static void *launch(void *number) {
    pthread_barrier_wait(&start);
    for (uintptr_t kernel = 0; kernel < KERNELS; kernel++)
        cudaLaunchKernelExC(NULL, (void *)((uintptr_t)number * KERNELS + kernel + 1), NULL);
    return NULL;
}

static int taken_mib(void) {
    pthread_t threads[THREADS];
    size_t free_bytes, total_bytes;
    pthread_barrier_init(&start, NULL, THREADS);
    for (uintptr_t n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, launch, (void *)n);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
    cudaMemGetInfo(&free_bytes, &total_bytes);
    return (int)((total_bytes - free_bytes) >> 20);
}

int main(void) {
    int most = 0;
    for (int n = 0; n < PROCESSES; n++) {
        int pipes[2], taken = -1;
        if (pipe(pipes)) return 1;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(5);
            taken = taken_mib();
            _exit(write(pipes[1], &taken, sizeof taken) != sizeof taken);
        }
        close(pipes[1]);
        if (read(pipes[0], &taken, sizeof taken) != sizeof taken) return 1;
        close(pipes[0]);
        waitpid(pid, NULL, 0);
        if (taken > most) most = taken;
    }
    printf("%d\n", most);
    return 0;
}
