/* ntr: entry point. */
#include "ntr.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* Descriptors 0 to 2 are passed to calls and written to: where the caller closed one, a socket must not take
 * its place. */
static void open_std_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

int main(int argc, char **argv)
{
	open_std_fds();
	/* A caller that ignores it would hide how the programs end that are run here. */
	signal(SIGCHLD, SIG_DFL);
	return ntr_args_main(argc, argv);
}
