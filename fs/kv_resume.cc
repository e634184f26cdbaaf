/* RocksDB after a failed write. It tells errors it gets over by itself (a full disk) from hard ones, which
 * DB::Resume gets over, and fatal ones, after which only a new opening helps. It counts every EIO, EFBIG or
 * EDQUOT as fatal; but what resuming does (write all that is in memory to new files, go on with a new log)
 * needs nothing of what failed. So such errors are made hard ones here. C++ because the C API has neither
 * listeners nor Resume. */
#include <cstring>

#include <rocksdb/c.h>
#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>

extern "C" bool ntr_kv_set_listener(rocksdb_options_t *o);
extern "C" char *ntr_kv_db_resume(rocksdb_t *db);

/* As in RocksDB's db/c.cc. */
struct rocksdb_options_t {
	rocksdb::Options rep;
};
struct rocksdb_t {
	rocksdb::DB *rep;
};

namespace
{

class softener : public rocksdb::EventListener
{
      public:
	void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status *s) override
	{
		if (s->IsIOError() && s->severity() == rocksdb::Status::Severity::kFatalError)
			*s = rocksdb::Status(*s, rocksdb::Status::Severity::kHardError);
	}
};

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

/* NULL, or why it cannot go on (for rocksdb_free). */
char *ntr_kv_db_resume(rocksdb_t *db)
{
	rocksdb::Status s = db->rep->Resume();

	return s.ok() ? nullptr : strdup(s.ToString().c_str());
}
