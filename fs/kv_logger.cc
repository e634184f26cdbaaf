/* A log for RocksDB that a full disk cannot hurt. Its own one aborts the process, where it is built with
 * assertions (Debian's is), at the second line after one that could not be written. C++ because
 * the C API can set a logger but not make one. */
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <rocksdb/c.h>
#include <rocksdb/env.h>

extern "C" bool ntr_kv_set_log(rocksdb_options_t *o, const char *dir);

/* As in RocksDB's db/c.cc. */
struct rocksdb_logger_t {
	std::shared_ptr<rocksdb::Logger> rep;
};

namespace
{

constexpr off_t log_max = 1 << 20;

/* Warnings and worse, in DIR/LOG, opened when there is the first one. Lines that cannot be written are lost.
 */
class plain_log : public rocksdb::Logger
{
      public:
	explicit plain_log(const char *dir) : Logger(rocksdb::WARN_LEVEL), path(std::string(dir) + "/LOG") {}
	~plain_log() override
	{
		if (fd >= 0)
			close(fd);
	}

	using rocksdb::Logger::Logv;
	void LogHeader(const char *, va_list) override {}
	__attribute__((format(printf, 2, 0))) void Logv(const char *format, va_list ap) override
	{
		char line[2048];
		time_t now = time(nullptr);
		struct tm tm;
		std::lock_guard<std::mutex> guard(lock);

		if (!ready())
			return;
		size_t n = strftime(line, sizeof line, "%FT%TZ ", gmtime_r(&now, &tm));
		int k = vsnprintf(line + n, sizeof line - n - 1, format, ap);

		n = k < 0 ? n : std::min(n + static_cast<size_t>(k), sizeof line - 2);
		line[n++] = '\n';
		if (write(fd, line, n) < 0)
			failed++;
	}

      private:
	/* One older file is kept. */
	bool ready()
	{
		struct stat st;

		if (fd >= 0 && !fstat(fd, &st) && st.st_size > log_max) {
			close(fd);
			fd = -1;
			rename(path.c_str(), (path + ".old").c_str());
		}
		if (fd < 0)
			fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
		return fd >= 0;
	}

	std::mutex lock;
	std::string path;
	int fd = -1;
	unsigned failed = 0;
};

} // namespace

/* false: out of memory. */
bool ntr_kv_set_log(rocksdb_options_t *o, const char *dir)
{
	try {
		rocksdb_logger_t l{std::make_shared<plain_log>(dir)};

		rocksdb_options_set_info_log(o, &l);
		return true;
	} catch (const std::bad_alloc &) {
		return false;
	}
}
