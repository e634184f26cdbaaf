/* RocksDB after a failed write. It tells errors it gets over by itself (a full disk) from hard ones, which
 * DB::Resume gets over, and fatal ones, after which only a new opening helps. It counts every EIO, EFBIG or
 * EDQUOT as fatal; but what resuming does (write all that is in memory to new files, go on with a new log)
 * needs nothing of what failed. So such errors are made hard ones here.
 *
 * An error stops its background work at once, and a flush that is queued then is never begun (7.8 leaves its
 * request in the queue and forgets to look there; resuming would wait for it for ever). So the first error is
 * held back until the queue is empty, a moment, for there is a thread for each family's flush (kv_open.c).
 * And a job that fails while resuming waits for it makes resuming queue a flush, give up, and leave it just
 * so: hence resuming begins when no job is running.
 *
 * C++ because the C API has neither listeners nor Resume. */
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include <rocksdb/c.h>
#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>

extern "C" bool ntr_kv_set_listener(rocksdb_options_t *o);
extern "C" void ntr_kv_listener_watch(
        rocksdb_options_t *o, rocksdb_t *db, rocksdb_column_family_handle_t *const *cf, size_t n);
extern "C" char *ntr_kv_db_resume(rocksdb_t *db);
extern "C" bool ntr_kv_failed(rocksdb_options_t *o);

/* As in RocksDB's db/c.cc. */
struct rocksdb_options_t {
	rocksdb::Options rep;
};
struct rocksdb_t {
	rocksdb::DB *rep;
};
struct rocksdb_column_family_handle_t {
	rocksdb::ColumnFamilyHandle *rep;
};

namespace
{

constexpr auto queue_patience = std::chrono::milliseconds(1000);

class softener : public rocksdb::EventListener
{
      public:
	void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status *s) override
	{
		if (s->IsIOError() && s->severity() == rocksdb::Status::Severity::kFatalError)
			*s = rocksdb::Status(*s, rocksdb::Status::Severity::kHardError);
		if (!failed) {
			wait_for_queue();
			failed = true;
		}
	}

	void OnErrorRecoveryCompleted(rocksdb::Status) override { failed = false; }

	void watch(rocksdb::DB *database, rocksdb_column_family_handle_t *const *cf, size_t n)
	{
		std::lock_guard<std::mutex> held(lock);

		db = database;
		families = cf;
		count = n;
	}

	bool has_failed() { return failed; }

      private:
	/* A request waits, and nobody works at that family's. */
	bool queued(rocksdb::ColumnFamilyHandle *family)
	{
		uint64_t n = 0;

		return db->GetIntProperty(family, rocksdb::DB::Properties::kMemTableFlushPending, &n) && n;
	}

	void wait_for_queue()
	{
		std::lock_guard<std::mutex> held(lock);
		auto until = std::chrono::steady_clock::now() + queue_patience;

		for (size_t i = 0; db && i < count; i++)
			while (queued(families[i]->rep) && std::chrono::steady_clock::now() < until)
				std::this_thread::sleep_for(std::chrono::microseconds(200));
	}

	std::mutex lock; /* of what is watched: closing waits for a look at it */
	rocksdb::DB *db = nullptr;
	rocksdb_column_family_handle_t *const *families = nullptr;
	size_t count = 0;
	std::atomic<bool> failed{false}; /* and not resumed since */
};

softener *listener_of(rocksdb_options_t *o)
{
	return static_cast<softener *>(o->rep.listeners.back().get());
}

} // namespace

/* false: out of memory. */
bool ntr_kv_set_listener(rocksdb_options_t *o)
{
	try {
		o->rep.listeners.push_back(std::make_shared<softener>());
		return true;
	} catch (const std::bad_alloc &) {
		return false;
	}
}

/* The database that these options opened, until told NULL, before it is closed. */
void ntr_kv_listener_watch(
        rocksdb_options_t *o, rocksdb_t *db, rocksdb_column_family_handle_t *const *cf, size_t n)
{
	listener_of(o)->watch(db ? db->rep : nullptr, cf, n);
}

static bool jobs_running(rocksdb::DB *db)
{
	uint64_t flushes = 0, compactions = 0;

	db->GetIntProperty(rocksdb::DB::Properties::kNumRunningFlushes, &flushes);
	db->GetIntProperty(rocksdb::DB::Properties::kNumRunningCompactions, &compactions);
	return flushes || compactions;
}

/* NULL, or why it cannot go on (for rocksdb_free). */
char *ntr_kv_db_resume(rocksdb_t *db)
{
	while (jobs_running(db->rep))
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	rocksdb::Status s = db->rep->Resume();

	return s.ok() ? nullptr : strdup(s.ToString().c_str());
}

bool ntr_kv_failed(rocksdb_options_t *o)
{
	return listener_of(o)->has_failed();
}
